// Package lint finds all that is wrong with a file that the server reads, with line and column and
// what to write in its place. Whether something is wrong the server's own readers say.
package lint

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
)

// Kind is what a file is.
type Kind string

// The kinds.
const (
	Tokens      Kind = "token"
	Passwords   Kind = "password"
	ABAC        Kind = "abac"
	Certificate Kind = "certificate-request"
	Config      Kind = "config"
	Revocation  Kind = "revocation"
)

// Kinds are all kinds.
func Kinds() []string {
	return []string{
		string(Tokens), string(Passwords), string(ABAC), string(Certificate), string(Config), string(Revocation),
	}
}

// Problem is one thing that is wrong. It never holds a token or a password.
type Problem struct {
	File string `json:"file"`
	// Line and Column are counted from 1.
	Line   int `json:"line"`
	Column int `json:"column"`
	// Warning says that the server takes the file all the same.
	Warning bool   `json:"warning,omitempty"`
	Text    string `json:"problem"`
	Fix     string `json:"fix,omitempty"`
}

// String returns the problem as compilers print theirs.
func (p *Problem) String() string {
	text := fmt.Sprintf("%s:%d:%d: ", p.File, p.Line, p.Column)
	if p.Warning {
		text += "warning: "
	}
	return text + p.Text
}

// most is how many problems of a file are looked for: what is no such file at
// all has one in each line.
const most = 100

// File returns the problems of a file, by line, and for a configuration those of the files that it
// names. An empty kind is told from the file. The error says that it cannot be read.
func File(ctx context.Context, path string, kind Kind) ([]Problem, error) {
	data, err := os.ReadFile(path) // #nosec G304 -- the caller names it
	if err != nil {
		return nil, err
	}
	if kind == "" {
		kind = kindOf(path, data)
	}
	var found []Problem
	switch kind {
	case Tokens, Passwords:
		found, err = credentials(ctx, data, kind, &configv1alpha1.CredentialFile{})
		found = append(found, readable(path)...)
	case ABAC:
		found = policy(data)
	case Certificate:
		found = certificate(data)
	case Revocation:
		found = revocation(path, data)
	case Config:
		return configuration(ctx, path, data)
	default:
		return nil, fmt.Errorf("--kind %s: want %s", kind, strings.Join(Kinds(), ", "))
	}
	return placed(path, found), err
}

// placed names the file in each problem, and puts them in their order.
func placed(path string, found []Problem) []Problem {
	for i := range found {
		if found[i].File == "" {
			found[i].File = path
		}
		found[i].Line, found[i].Column = max(found[i].Line, 1), max(found[i].Column, 1)
	}
	slices.SortStableFunc(found, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return found
}

// kindOf tells what a file is from what is in it; files of comma-separated values by their name.
func kindOf(path string, data []byte) Kind {
	first := firstLine(data)
	var is struct {
		Kind string `yaml:"kind"`
	}
	switch {
	case bytes.Contains(data, []byte("-----BEGIN CERTIFICATE REQUEST")),
		bytes.Contains(data, []byte("-----BEGIN NEW CERTIFICATE REQUEST")):
		return Certificate
	case filepath.Ext(path) == ".jsonl",
		json.Valid(first) && bytes.HasPrefix(first, []byte("{")) &&
			!bytes.Contains(first, []byte(configv1alpha1.KindTenancyConfiguration)):
		return ABAC
	case yaml.Unmarshal(data, &is) == nil && is.Kind == "CertificateSigningRequest":
		return Certificate
	case is.Kind == configv1alpha1.KindRevocation:
		return Revocation
	case is.Kind != "":
		return Config
	}
	switch ext := filepath.Ext(path); {
	case ext == ".yaml", ext == ".yml":
		return Config
	case bytes.HasPrefix(first, []byte("{")):
		return ABAC
	case strings.Contains(strings.ToLower(filepath.Base(path)), "pass"):
		return Passwords
	}
	return Tokens
}

// firstLine returns the first line that says anything.
func firstLine(data []byte) []byte {
	for line := range bytes.Lines(data) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return line
		}
	}
	return nil
}

// readable warns of a file of secrets that others may read.
func readable(path string) []Problem {
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm()&0o077 == 0 {
		return nil
	}
	return []Problem{{
		Warning: true,
		Text:    fmt.Sprintf("others may read the file (mode %04o)", info.Mode().Perm()),
		Fix:     "chmod 600 " + path,
	}}
}
