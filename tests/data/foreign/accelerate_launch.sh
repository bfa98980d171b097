#!/bin/bash
# A Megatron program under accelerate's launcher.
OPTS="--num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length 1024"
OPTS+=" --max-position-embeddings 1024 --micro-batch-size 4 --global-batch-size 64 --train-iters 1000"
OPTS+=" --lr 6e-4 --lr-decay-style constant --tokenizer-type NullTokenizer --vocab-size 50257"
OPTS+=" --data-path 'my data/corpus' --split 1,0,0 --eval-iters 0"
eval accelerate launch --multi_gpu --num_processes 8 --num_machines 2 --mixed_precision no pretrain_gpt.py $OPTS
