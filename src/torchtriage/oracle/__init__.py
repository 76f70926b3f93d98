"""What "the same as eager" means: values, gradients, mutation, metadata, exceptions."""
