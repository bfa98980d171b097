#!/bin/bash
# 16 GPUs, three virtual stages on each of four; a blend of data; full recompute.
PP=4; LAYERS=24; VP=3
export CUDA_DEVICE_MAX_CONNECTIONS=1 OMP_NUM_THREADS=4
PER_STAGE=$(( LAYERS / PP / VP ))
BLEND="2 /data/web 1 /data/code"
args=(--num-layers $LAYERS --hidden-size 2048 --num-attention-heads 16 --seq-length 2048)
args+=(--max-position-embeddings 2048 --tensor-model-parallel-size 2 --pipeline-model-parallel-size $PP)
args+=(--num-layers-per-virtual-pipeline-stage $PER_STAGE)
args+=(--micro-batch-size 2 --global-batch-size 128 --train-iters 10000 --lr-decay-iters 10000)
args+=(--lr 1e-4 --lr-warmup-iters 200 --lr-decay-style linear --bf16 --attention-softmax-in-fp32)
args+=(--recompute-granularity full --recompute-method uniform --recompute-num-layers 1)
args+=(--data-path $BLEND --split 100,0,0 --tokenizer-type GPT2BPETokenizer)
args+=(--vocab-file v.json --merge-file m.txt --hidden-dropout 0 --attention-dropout 0 --eval-iters 0)
args+=(--weight-decay 1e-2 --clip-grad 1 --adam-beta2 0.999)
python3 -m torch.distributed.run --nproc-per-node 8 --nnodes 2 pretrain_gpt.py "${args[@]}" 2>&1 | tee -a train.log
