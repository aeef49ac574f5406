"""Online predictions between organisations: a service at each of them, with whoever answers in time."""
