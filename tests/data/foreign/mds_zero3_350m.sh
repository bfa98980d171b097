#!/usr/bin/env bash
# 350M, ZeRO-3 on one node, arrays instead of one long string.
GPUS=${GPUS:-8}
MICRO=1
GAS=4
GLOBAL=$(($GPUS * $MICRO * $GAS))
CFG=/tmp/ds.json

cat > "$CFG" <<'EOF'
{
    "train_batch_size": 32,
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 4,
    "gradient_clipping": 0.5,
    "zero_optimization": {"stage": 3, "overlap_comm": true},
    "fp16": {"enabled": true, "initial_scale_power": 11}
}
EOF

MODEL=(
  --num-layers 24          # GPT-2 medium
  --hidden-size 1024
  --num-attention-heads 16
  --seq-length 1024
  --max-position-embeddings 1024
)
TRAIN=(--micro-batch-size "$MICRO" --global-batch-size "$GLOBAL"
  --train-samples 3200000 --lr-warmup-samples 32000 --lr-decay-samples 3200000
  --lr 3e-4 --min-lr 1e-5 --lr-decay-style linear
  --clip-grad 0.5 --weight-decay 0.01 --fp16 --seed 42
  --hidden-dropout 0.1 --attention-dropout 0.1)
DS=(--deepspeed --deepspeed_config="$CFG" --zero-stage 3 --no-pipeline-parallel)
DATA=(--tokenizer-type NullTokenizer --vocab-size 50256 --train-data-path /d/train
  --valid-data-path 1 /d/valid 3 /d/valid2 --eval-interval 500 --eval-iters 20)

deepspeed --num_gpus=$GPUS Megatron-DeepSpeed/pretrain_gpt.py \
  "${MODEL[@]}" "${TRAIN[@]}" "${DS[@]}" "${DATA[@]}" \
  --save out/350m --save-interval 500 \
  --tensorboard-dir out/tb --log-interval 5
