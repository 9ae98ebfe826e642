package v1alpha1

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// maxFileBytes bounds a configuration or scenario file: a hundred times any seen, and small
// enough that a wrong path (a disk, a log) ends in an error instead of in exhausted memory.
const maxFileBytes = 16 << 20

// Load reads, decodes, defaults and validates the configuration at path. Relative paths in it are
// taken relative to the file's folder. The error names the file, and every problem with its
// field.
func Load(path string) (*TenancyConfiguration, error) {
	data, err := readFile(path)
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
	for _, p := range s.Paths() {
		if !filepath.IsAbs(*p) {
			*p = filepath.Join(dir, *p)
		}
	}
}

// Decode decodes, defaults and validates a configuration. Paths in it are left as they are.
func Decode(data []byte) (*TenancyConfiguration, error) {
	c := &TenancyConfiguration{}
	if err := unmarshalStrict(data, c); err != nil {
		return nil, err
	}
	if err := checkKind(c.TypeMeta, KindTenancyConfiguration); err != nil {
		return nil, err
	}
	Default(&c.Settings)
	if errs := Validate(&c.Settings, nil); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return c, nil
}

// Paths returns every non-empty path in s, to be read or replaced.
func (s *Settings) Paths() []*string {
	var all []*string
	for i := range s.Authentication.Sources {
		src := &s.Authentication.Sources[i]
		if src.X509 != nil && src.X509.ClientCAFile != "" {
			all = append(all, &src.X509.ClientCAFile)
		}
		for _, f := range []*CredentialFile{src.TokenFile, src.BasicAuthFile} {
			if f != nil && f.Path != "" {
				all = append(all, &f.Path)
			}
		}
	}
	return all
}

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFileBytes {
		return nil, fmt.Errorf("%s: not a regular file of at most %d bytes", path, maxFileBytes)
	}
	return os.ReadFile(path) // #nosec G304 -- the operator names the file
}

// unmarshalStrict decodes YAML or JSON; unknown, duplicate and wrongly cased fields fail, all of
// them in one error.
func unmarshalStrict(data []byte, into any) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return errors.New("empty document")
	}
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return err
	}
	strict, err := kjson.UnmarshalStrict(asJSON, into)
	if err != nil {
		return err
	}
	return errors.Join(strict...)
}

func checkKind(t metav1.TypeMeta, kind string) error {
	if t.APIVersion != GroupVersion || t.Kind != kind {
		return fmt.Errorf("want apiVersion %s and kind %s", GroupVersion, kind)
	}
	return nil
}
