#!/bin/bash
# 1.3B GPT, ZeRO-1 with a pipeline of two stages.
set -euo pipefail

DIR=`pwd`
SEQ_LEN=2048
MODEL_SIZE=1.3
NUM_LAYERS=24
HIDDEN_SIZE=2048
NUM_ATTN_HEADS=16
GLOBAL_BATCH_SIZE=256
LR=2.0e-4
MIN_LR=2.0e-5

TRAIN_ITERS=$(( 64000 * 2 ))
LR_WARMUP_ITERS=1500

## Parallelism
MP_SIZE=2
PP_SIZE=2
NUM_GPUS_PER_NODE=8
NNODES=2
DP_SIZE=$(( ${NUM_GPUS_PER_NODE} * NNODES / (MP_SIZE * PP_SIZE) ))
BATCH_SIZE=1
GAS=$(( GLOBAL_BATCH_SIZE / DP_SIZE / BATCH_SIZE ))

LOG_INTERVAL=10
CHECKPOINT_PATH=/ckpt/gpt_${MODEL_SIZE}B
DATA_PATH="0.7 /data/pile_text_document 0.3 /data/books_text_document"
CONFIG_JSON="ds_config_gpt_${MODEL_SIZE}.json"
ZERO_STAGE=1

cat <<EOT > $CONFIG_JSON
{
  "train_batch_size" : $GLOBAL_BATCH_SIZE,
  "train_micro_batch_size_per_gpu": ${BATCH_SIZE},
  "steps_per_print": $LOG_INTERVAL,
  "zero_optimization": {
    "stage": $ZERO_STAGE
  },
  "gradient_clipping": 1.0,
  "bf16": {
    "enabled": true
  },
  "wall_clock_breakdown" : false
}
EOT

megatron_options=" \
    --tensor-model-parallel-size ${MP_SIZE} \
    --pipeline-model-parallel-size ${PP_SIZE} \
    --num-layers ${NUM_LAYERS} \
    --hidden-size ${HIDDEN_SIZE} \
    --num-attention-heads ${NUM_ATTN_HEADS} \
    --seq-length ${SEQ_LEN} \
    --max-position-embeddings ${SEQ_LEN} \
    --micro-batch-size ${BATCH_SIZE} \
    --global-batch-size ${GLOBAL_BATCH_SIZE} \
    --train-iters ${TRAIN_ITERS} \
    --lr-decay-iters ${TRAIN_ITERS} \
    --lr-warmup-iters ${LR_WARMUP_ITERS} \
    --lr ${LR} \
    --min-lr ${MIN_LR} \
    --lr-decay-style cosine \
    --weight-decay 0.1 \
    --adam-beta1 0.9 \
    --adam-beta2 0.95 \
    --clip-grad 1.0 \
    --hidden-dropout 0 \
    --attention-dropout 0 \
    --init-method-std 0.013 \
    --split 949,50,1 \
    --log-interval ${LOG_INTERVAL} \
    --eval-interval 100 \
    --eval-iters 10 \
    --save-interval 1000 \
    --vocab-file gpt2-vocab.json \
    --merge-file gpt2-merges.txt \
    --tokenizer-type GPT2BPETokenizer \
    --data-path ${DATA_PATH} \
    --save ${CHECKPOINT_PATH} \
    --load ${CHECKPOINT_PATH} \
    --num-workers 4 \
    --bf16"

deepspeed_options=" \
    --deepspeed \
    --deepspeed_config ${CONFIG_JSON} \
    --zero-stage ${ZERO_STAGE}"

if [[ $PP_SIZE -eq 1 ]]; then
    deepspeed_options="${deepspeed_options} --no-pipeline-parallel"
fi
deepspeed_options+=" --checkpoint-activations --deepspeed-activation-checkpointing"

export NCCL_IB_TIMEOUT=22
export CUDA_DEVICE_MAX_CONNECTIONS=1

run_cmd="deepspeed --num_nodes ${NNODES} --num_gpus ${NUM_GPUS_PER_NODE} ${DIR}/pretrain_gpt.py ${megatron_options} ${deepspeed_options} 2>&1 | tee train.log"
echo ${run_cmd}
eval ${run_cmd}
