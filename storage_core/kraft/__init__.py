"""What a KRaft broker reads at its first start besides its logs."""
