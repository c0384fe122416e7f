"""Keep what each load host did in a trial, and merge it into what one generator would have done."""
