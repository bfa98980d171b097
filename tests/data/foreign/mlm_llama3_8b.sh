#!/bin/bash
set -e
TP_SIZE=4
declare -a MODEL_ARGS
MODEL_ARGS=(
    --use-mcore-models
    --num-layers 32
    --hidden-size 4096
    --ffn-hidden-size 14336
    --num-attention-heads 32
    --group-query-attention
    --num-query-groups 8
    --kv-channels 128
    --seq-length 8192
    --max-position-embeddings 8192
    --position-embedding-type rope
    --rotary-base 500000
    --swiglu
    --normalization RMSNorm
    --norm-epsilon 1e-5
    --disable-bias-linear
    --untie-embeddings-and-output-weights
    --attention-dropout 0.0
    --hidden-dropout 0.0
)
TRAINING_ARGS=(
    --micro-batch-size 1
    --global-batch-size 128
    --train-iters 2000
    --lr 0.00015
    --min-lr 0.00001
    --lr-decay-style cosine
    --lr-warmup-iters 100
    --weight-decay 0.1
    --adam-beta1 0.9
    --adam-beta2 0.95
    --clip-grad 1.0
    --bf16
    --recompute-granularity selective
)
PARALLEL_ARGS=(
    --tensor-model-parallel-size ${TP_SIZE}
    --pipeline-model-parallel-size 2
    --sequence-parallel
    --use-distributed-optimizer
    --overlap-grad-reduce
)
[[ $TP_SIZE -gt 1 ]] && export CUDA_DEVICE_MAX_CONNECTIONS=1
DATA_ARGS=(--mock-data --tokenizer-type NullTokenizer --vocab-size 128256)
torchrun --nproc_per_node=8 --nnodes=2 --node_rank=$NODE_RANK --rdzv_endpoint=$HOST:29400 \
    megatron/pretrain_gpt.py "${MODEL_ARGS[@]}" "${TRAINING_ARGS[@]}" "${PARALLEL_ARGS[@]}" "${DATA_ARGS[@]}" \
    --eval-iters 0 --save /ckpt/llama --load /ckpt/llama --save-interval 200 --distributed-timeout-minutes 60
