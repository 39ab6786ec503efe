"""What is known of expressions and updates without running them."""
