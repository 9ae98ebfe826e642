// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/cli/validate"
)

const (
	// configurationKey is the key of the TenancyConfiguration in the Secret.
	configurationKey = "tenancy.yaml"
	// configurationMount is the directory at which a container mounts the Secret.
	configurationMount = "/etc/kubetenant/config/"
	maxProblems        = 10
)

// secretKey returns the key in the Secret for a file with the given path. The template of the Helm
// chart computes the same key.
func secretKey(path string) string {
	if regexp.MustCompile(`^[-_a-zA-Z0-9][-._a-zA-Z0-9]*$`).MatchString(path) {
		return path
	}
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:])
}

// checkConfiguration returns the first maxProblems errors that "kubectl tenant validate" reports
// for the configuration in a Secret. It writes the files of the Secret to a temporary directory.
func checkConfiguration(ctx context.Context, data map[string][]byte) (problems []string, err error) {
	text, ok := data[configurationKey]
	if !ok {
		return []string{"the key " + configurationKey + " is missing"}, nil
	}
	dir, err := os.MkdirTemp("", "configuration-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	config, err := configv1alpha1.Decode(text)
	if err == nil {
		config.Gateway = nil // the files that the section gateway names are not in this Secret
		for _, path := range config.Paths() {
			local := filepath.ToSlash(filepath.Clean(strings.TrimPrefix(*path, configurationMount)))
			if !filepath.IsLocal(local) {
				return []string{fmt.Sprintf("%s names %q, which is not a file of the Secret", configurationKey, *path)}, nil
			}
			content, ok := data[secretKey(local)]
			if !ok {
				return []string{fmt.Sprintf("%s names %q, but the Secret has no key %s", configurationKey, *path,
					secretKey(local))}, nil
			}
			if err := write(dir, local, content); err != nil {
				return nil, err
			}
		}
		text = []byte(strings.ReplaceAll(string(text), configurationMount, ""))
	}
	if err := write(dir, configurationKey, text); err != nil {
		return nil, err
	}
	report, _ := validate.Files(ctx, []string{filepath.Join(dir, configurationKey)},
		validate.Options{Kind: validate.Config})
	for i := range report.Findings {
		if f := &report.Findings[i]; f.Severity == validate.Error {
			problems = append(problems, strings.ReplaceAll(f.String(), dir+string(filepath.Separator), ""))
		}
	}
	for _, err := range report.Unread {
		problems = append(problems, strings.ReplaceAll(err.Error(), dir+string(filepath.Separator), ""))
	}
	return problems[:min(len(problems), maxProblems)], nil
}

func write(dir, name string, content []byte) error {
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o600)
}
