#!/bin/bash
# Shaped like scripts that fill a template: the JSON stands beside the script.
PP=4
TP=1
HOSTFILE=hostfiles/a100x8.txt
ARGS="--tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP"
ARGS="$ARGS --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --ffn-hidden-size 16384"
ARGS="$ARGS --seq-length 2048 --max-position-embeddings 2048"
ARGS="$ARGS --micro-batch-size 1 --train-iters 500 --lr 1.2e-4 --lr-warmup-fraction 0.02"
ARGS="$ARGS --lr-decay-style cosine --min-lr 1.2e-5 --bf16 --init-method-std 0.02"
ARGS="$ARGS --data-path $DATA_PREFIX --split 100,0,0 --vocab-file v.json --merge-file m.txt"
ARGS="$ARGS --tokenizer-type GPT2BPETokenizer --global-batch-size 64 --eval-iters 0"
ARGS="$ARGS --use-flash-attn-v2 --weight-decay 0.1 --adam-beta2 0.95 --hidden-dropout 0 --attention-dropout 0"
for i in 1 2 3; do
  echo "warming up $i"
done
deepspeed --hostfile $HOSTFILE --num_nodes 2 --num_gpus 8 --master_port 29501 \
    /opt/Megatron-DeepSpeed/pretrain_gpt.py $ARGS \
    --deepspeed --deepspeed_config mds_template.json --zero-stage 1 $EXTRA
