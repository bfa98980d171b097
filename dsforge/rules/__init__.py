"""Floor 3: rules of legality and good practice; one file a rule in `checks/`. Pure."""
