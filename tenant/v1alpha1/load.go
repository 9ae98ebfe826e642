package v1alpha1

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
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

// Complete returns a defaulted copy of s, or every problem that it has.
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

// Paths returns every non-empty path in s, to be read or replaced.
func (s *Settings) Paths() []*string {
	var all []*string
	add := func(paths ...*string) {
		for _, p := range paths {
			if *p != "" {
				all = append(all, p)
			}
		}
	}
	if r := s.Authentication.Revocation; r != nil {
		add(&r.Path)
	}
	if a := s.Authorization.ABAC; a != nil {
		add(&a.Path)
	}
	for i := range s.Authentication.Sources {
		s.Authentication.Sources[i].kinds(func(_ string, config sourceConfig) { add(config.files()...) })
	}
	add(s.Gateway.paths()...)
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

// documents returns the YAML documents of a file, without the empty ones.
func documents(data []byte) ([][]byte, error) {
	var all [][]byte
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for n := 1; ; n++ {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		if len(bytes.Trim(doc, "- \n\r\t")) > 0 {
			all = append(all, doc)
		}
	}
}

// unmarshalStrict decodes a document of the kind. Its problems are the unknown, duplicate and
// wrongly cased fields, beside which the rest is decoded.
func unmarshalStrict(data []byte, kind string, into any) (problems []error, err error) {
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, err
	}
	var is metav1.TypeMeta
	if err := json.Unmarshal(asJSON, &is); err != nil {
		return nil, err
	}
	if is.APIVersion != GroupVersion || is.Kind != kind {
		return nil, fmt.Errorf("want apiVersion %s and kind %s", GroupVersion, kind)
	}
	return kjson.UnmarshalStrict(asJSON, into)
}
