"""How long stages take on so many GPUs and cores, from what was measured on one machine. Knows no Ray and no MLflow."""
