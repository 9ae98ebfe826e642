// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Command sizes prints the size of the code of each module in Linux binaries, as a Markdown table.
// It also supports stripped binaries.
package main

import (
	"cmp"
	"debug/elf"
	"debug/gosym"
	"flag"
	"fmt"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	log.SetFlags(0)
	groups := flag.Int("groups", 20, "number of groups to print")
	flag.Parse()
	if err := run(flag.Args(), *groups); err != nil {
		log.Fatal(err)
	}
}

func run(files []string, groups int) error {
	header, rule, total, tables := "| |", "|---|", "| the file |", "| pclntab: the runtime's table of functions |"
	sizes := map[string][]uint64{} // keyed by group, with one size for each file
	for i, name := range files {
		info, err := os.Stat(name)
		if err != nil {
			return err
		}
		groupSizes, table, err := read(name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		header, rule = header+" "+filepath.Base(name)+" |", rule+"---|"
		total, tables = total+megabytes(info.Size()), tables+megabytes(table)
		for group, size := range groupSizes {
			if sizes[group] == nil {
				sizes[group] = make([]uint64, len(files))
			}
			sizes[group][i] = size
		}
	}
	fmt.Println(header + "\n" + rule + "\n" + total + "\n" + tables)
	names := slices.SortedFunc(maps.Keys(sizes), func(a, b string) int {
		return cmp.Or(cmp.Compare(slices.Max(sizes[b]), slices.Max(sizes[a])), cmp.Compare(a, b))
	})
	for _, name := range names[:min(groups, len(names))] {
		row := "| " + name + " |"
		for _, size := range sizes[name] {
			row += megabytes(size)
		}
		fmt.Println(row)
	}
	return nil
}

func megabytes[T int64 | uint64](size T) string { return fmt.Sprintf(" %.1f |", float64(size)/1e6) }

// read returns the size of the code of each group, and the size of the runtime's function table.
func read(name string) (code map[string]uint64, table uint64, err error) {
	file, err := elf.Open(name)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = file.Close() }()
	lines := file.Section(".gopclntab")
	if lines == nil {
		return nil, 0, fmt.Errorf("no section .gopclntab")
	}
	data, err := lines.Data()
	if err != nil {
		return nil, 0, err
	}
	functions, err := gosym.NewTable(nil, gosym.NewLineTable(data, file.Section(".text").Addr))
	if err != nil {
		return nil, 0, err
	}
	code = map[string]uint64{}
	for i := range functions.Funcs {
		f := &functions.Funcs[i]
		code[group(f.Name)] += f.End - f.Entry
	}
	return code, lines.Size, nil
}

// group returns the module of a function, or a part of the module if the module is large. The
// standard library is one group.
func group(function string) string {
	function, _, _ = strings.Cut(function, "[") // type arguments
	parts := strings.Split(function, "/")
	last := len(parts) - 1
	parts[last], _, _ = strings.Cut(parts[last], ".")
	domain, _, found := strings.Cut(parts[0], ".")
	switch {
	case last == 0 && parts[0] == "main":
		return "main"
	case !found || domain == "" || last == 0:
		return "the standard library"
	case parts[0] == "k8s.io" && parts[1] == "client-go":
		return strings.Join(parts[:min(3, len(parts))], "/")
	case parts[0] == "k8s.io" || parts[0] == "sigs.k8s.io" || parts[0] == "go.etcd.io":
		return strings.Join(parts[:2], "/")
	}
	return strings.Join(parts[:min(3, len(parts))], "/")
}
