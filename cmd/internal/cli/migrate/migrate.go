// Package migrate turns the files of other projects into this project's. What cannot be said here, or would
// say more than it did there, is left out and named: nobody gets a right by a migration.
package migrate

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Result is what came of a file.
type Result struct {
	// Files are this project's, by their names.
	Files map[string]string
	// Left says what was not carried over, and where it stands. It holds no secret.
	Left []string
	// Next says what else is to be done.
	Next []string
}

// left adds what was not carried over.
func (r *Result) left(where, format string, args ...any) {
	r.Left = append(r.Left, where+": "+fmt.Sprintf(format, args...))
}

// Options say what the files do not.
type Options struct {
	// GroupsPrefix is that of the keystone source.
	GroupsPrefix string
}

// From are the kinds of files, each with the function that reads it.
func From() map[string]func([]byte, Options) (*Result, error) {
	return map[string]func([]byte, Options) (*Result, error){
		"arktos-tokens": func(data []byte, _ Options) (*Result, error) {
			return arktosCredentials(data, "tokens.csv", "tokenFile")
		},
		"arktos-passwords": func(data []byte, _ Options) (*Result, error) {
			return arktosCredentials(data, "passwords.csv", "basicAuthFile")
		},
		"arktos-policy":     func(data []byte, _ Options) (*Result, error) { return arktosPolicy(data) },
		"k8s-keystone-auth": keystoneAuth,
		"capsule":           func(data []byte, _ Options) (*Result, error) { return capsule(data) },
	}
}

// Kinds are the names of From.
func Kinds() []string { return slices.Sorted(maps.Keys(From())) }

// split returns the YAML documents of a file.
func split(data []byte) [][]byte {
	var out [][]byte
	for part := range bytes.SplitSeq(data, []byte("\n---")) {
		if len(bytes.TrimSpace(part)) > 0 {
			out = append(out, part)
		}
	}
	return out
}

func typeMeta(apiVersion, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}
}
