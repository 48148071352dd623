"""The program falaj, through real pipes and real terminals."""
