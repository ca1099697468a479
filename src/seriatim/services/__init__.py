"""What REST, the operator's commands and the simulator share: changes that touch several ports."""
