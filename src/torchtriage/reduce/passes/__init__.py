"""The passes over Python source. Each file is named for what its passes remove or replace."""
