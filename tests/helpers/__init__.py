"""What tests share: oracles, stand-ins, small worlds, and generators of pages."""
