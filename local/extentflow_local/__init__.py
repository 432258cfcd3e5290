"""A site on one machine: `stack` starts real servers, `aws` emulates functions and Spark runs."""
