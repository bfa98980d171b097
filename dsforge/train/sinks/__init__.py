"""Where metrics go besides `metrics.jsonl`: one file a sink."""
