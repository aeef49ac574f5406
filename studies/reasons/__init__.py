"""Controls that test the reasons for which published claims do not hold in the other studies."""
