"""One file a rule: it defines `RULE`. Adding a file here adds the rule."""
