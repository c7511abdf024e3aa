"""Parts of the plan that are chosen after each epoch by what it has observed."""
