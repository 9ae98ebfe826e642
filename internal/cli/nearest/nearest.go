// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package nearest suggests the valid name that is most similar to a misspelled one.
package nearest

import "slices"

// Name returns the name that differs least from the misspelled one, or "" if no name is similar.
// It sorts names.
func Name(misspelled string, names []string) string {
	best := ""
	smallest := 1 + min(3, max(1, len(misspelled)/2))
	slices.Sort(names)
	for _, name := range names {
		if n := differences(misspelled, name); name != "" && n < smallest {
			best, smallest = name, n
		}
	}
	return best
}

// differences returns the minimum number of bytes to add, remove or replace that turns a into b.
func differences(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
