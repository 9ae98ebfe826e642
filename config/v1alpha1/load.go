// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/kubetenant/kubetenant/internal/yamlfile"
)

// Load reads, decodes, defaults and validates the configuration file at path. Relative paths in
// the configuration become relative to the directory of the file. The error contains the path of
// the file, and the field of every problem.
func Load(path string) (*TenancyConfiguration, error) {
	data, err := yamlfile.Read(path)
	if err != nil {
		return nil, err
	}
	c, err := Decode(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	c.ResolvePaths(filepath.Dir(path))
	return c, nil
}

// ResolvePaths makes the relative paths in s relative to dir.
func (s *Settings) ResolvePaths(dir string) {
	for _, p := range append(s.Paths(), s.written()...) {
		if !filepath.IsAbs(*p) {
			*p = filepath.Join(dir, *p)
		}
	}
}

// Decode decodes, defaults and validates a configuration. It does not change the paths in the
// configuration.
func Decode(data []byte) (*TenancyConfiguration, error) {
	c := &TenancyConfiguration{}
	problems, err := decodeOne(data, KindTenancyConfiguration, c)
	if err != nil {
		return nil, err
	}
	Default(&c.Settings)
	for _, p := range Validate(&c.Settings, nil) {
		problems = append(problems, p)
	}
	if len(problems) > 0 {
		return nil, utilerrors.NewAggregate(problems)
	}
	return c, nil
}

// Complete returns a defaulted copy of s, and an error that contains every problem in the copy.
func (s *Settings) Complete() (*Settings, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	c := &Settings{}
	if err := json.Unmarshal(data, c); err != nil {
		return nil, err
	}
	Default(c)
	return c, Validate(c, nil).ToAggregate()
}

// Paths returns pointers to the non-empty paths of the files in s that a server reads. It also
// returns the path of the gateway's audit log, unless it is "-". A caller may replace the paths.
func (s *Settings) Paths() []*string {
	var all []*string
	add := func(paths ...*string) { all = append(all, nonEmpty(paths)...) }
	if r := s.Authentication.Revocation; r != nil {
		add(&r.Path)
	}
	if a := s.Authorization.ABAC; a != nil {
		add(&a.Path)
	}
	for i := range s.Authentication.Sources {
		s.Authentication.Sources[i].kinds(func(_ string, config sourceConfig) { add(config.files()...) })
	}
	if e := s.Usage.Endpoint; e != nil {
		add(&e.CAFile, &e.TokenFile)
	}
	add(s.Gateway.paths()...)
	return all
}

// written returns pointers to the non-empty paths of the files and directories in s that a server
// writes, except the gateway's audit log, which [Settings.Paths] includes.
func (s *Settings) written() []*string {
	all := []*string{&s.Usage.Directory}
	if s.Usage.File != nil {
		all = append(all, &s.Usage.File.Path)
	}
	if s.Audit != nil {
		all = append(all, &s.Audit.Directory)
	}
	return nonEmpty(all)
}

func nonEmpty(paths []*string) []*string {
	return slices.DeleteFunc(paths, func(p *string) bool { return *p == "" })
}
