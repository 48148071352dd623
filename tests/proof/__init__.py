"""What tries to prove falaj wrong: read by another, attacked, copied, told false times."""
