"""What can be told of a function that was learned: testers of degree and width."""
