"""What the other libraries do, one file per comparison."""
