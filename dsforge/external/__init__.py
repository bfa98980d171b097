"""Other people's programs as data: what their options are and how a recipe becomes them. Pure."""
