"""The closed middle: plans, accountants, mechanisms and the curator. A change here is a reviewed change."""
