# Reads the output of "go build -v". Prints the number of compiled packages after every 200
# packages, and each line that is not the name of a package.
/^[A-Za-z0-9._~\/-]+$/ {
  if (++n % 200 == 0) { printf "  %d packages compiled\n", n; fflush() }
  next
}
{ print }
