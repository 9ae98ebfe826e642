# Reads the output of "go test -bench". For each pair of benchmarks whose names differ only in
# "upstream" and "kubetenant", prints the value for kubetenant divided by the value for upstream.
{ print }
/ns\/op/ {
  name = $1
  own = sub(/\/kubetenant/, "", name)
  if (!own && !sub(/\/upstream/, "", name)) next
  for (i = 3; i < NF; i += 2) {
    unit = $(i + 1)
    if (unit != "ns/op" && unit != "held-MB") continue
    key = name " " unit
    if (own) ours[key] = $i; else theirs[key] = $i
  }
}
END {
  print ""
  print "kubetenant / upstream:"
  for (key in ours) if (key in theirs && theirs[key] > 0)
    printf "  %-40s %10.3f\n", key, ours[key] / theirs[key] | "sort"
}
