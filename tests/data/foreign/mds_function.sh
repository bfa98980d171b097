#!/usr/bin/env bash
# GPT-2 medium, ZeRO-1, two pipeline stages.
BASE=/data
NUM_GPUS=8
TP=1
PP=2
MICRO=1
GLOBAL=64
DS_CONFIG=ds_config.json

write_config() {
  local stage=$1
  cat > "$DS_CONFIG" <<EOT
{
  "train_batch_size": $GLOBAL,
  "train_micro_batch_size_per_gpu": $MICRO,
  "steps_per_print": 10,
  "gradient_clipping": 1.0,
  "zero_optimization": {"stage": $stage},
  "bf16": {"enabled": true},
  "data_types": {"grad_accum_dtype": "fp32"},
  "wall_clock_breakdown": false
}
EOT
}

ZERO=1
write_config $ZERO

case "$PP" in
  1) PIPE="--no-pipeline-parallel" ;;
  *) PIPE="" ;;
esac

OPTIONS=" \
  --tensor-model-parallel-size $TP \
  --pipeline-model-parallel-size $PP \
  --num-layers 24 --hidden-size 1024 --num-attention-heads 16 \
  --seq-length 1024 --max-position-embeddings 1024 \
  --micro-batch-size $MICRO --global-batch-size $GLOBAL \
  --train-iters 10000 --lr-decay-iters 10000 --lr-warmup-iters 500 \
  --lr 1.5e-4 --min-lr 1.0e-5 --lr-decay-style cosine \
  --weight-decay 1e-2 --clip-grad 1.0 --bf16 \
  --data-path $BASE/my-gpt2_text_document --split 100,0,0 --eval-iters 0 \
  --vocab-file $BASE/gpt2-vocab.json --merge-file $BASE/gpt2-merges.txt \
  --save checkpoints --save-interval 1000"

until deepspeed --num_gpus $NUM_GPUS Megatron-DeepSpeed/pretrain_gpt.py $OPTIONS $PIPE \
    --deepspeed --deepspeed_config $DS_CONFIG --zero-stage $ZERO; do
  echo restarting
  sleep 10
done
