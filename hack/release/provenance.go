// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	provenancev1 "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intotov1 "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const (
	statementType = "https://in-toto.io/Statement/v1"
	predicateType = "https://slsa.dev/provenance/v1"
	buildType     = repository + "/blob/main/docs/releases.md#provenance"
	defaultMaker  = repository + "/blob/main/docs/releases.md#make-a-release"
)

// buildProvenance writes an in-toto statement with a SLSA provenance. Its subjects are the images
// and all files in the output folder.
func (r *release) buildProvenance(images map[string]string) error {
	files, err := digests(r.dist)
	if err != nil {
		return err
	}
	predicate := &provenancev1.Provenance{
		BuildDefinition: r.buildDefinition(),
		RunDetails: &provenancev1.RunDetails{
			Builder: &provenancev1.Builder{Id: r.builder},
			Metadata: &provenancev1.BuildMetadata{
				InvocationId: r.invocation,
				StartedOn:    timestamppb.New(r.started),
				FinishedOn:   timestamppb.New(time.Now().Truncate(time.Second)),
			},
		},
	}
	if err := predicate.Validate(); err != nil {
		return err
	}
	statement := &intotov1.Statement{
		Type:          statementType,
		Subject:       subjects(r.version, files, images),
		PredicateType: predicateType,
		Predicate:     &structpb.Struct{},
	}
	// The predicate of a statement has no Go type, so it is converted through JSON.
	text, err := protojson.Marshal(predicate)
	if err != nil {
		return err
	}
	if err := protojson.Unmarshal(text, statement.Predicate); err != nil {
		return err
	}
	if err := statement.Validate(); err != nil {
		return err
	}
	text, err = canonicalJSON(statement)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(r.dist, provenanceFile), func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// buildDefinition returns what the release is made from.
func (r *release) buildDefinition() *provenancev1.BuildDefinition {
	var names []any
	for _, p := range r.platforms {
		names = append(names, p.String())
	}
	return &provenancev1.BuildDefinition{
		BuildType: buildType,
		ExternalParameters: structOf(map[string]any{
			"platforms": names,
			"source":    repository,
			"version":   r.version,
		}),
		InternalParameters: structOf(map[string]any{"goVersion": runtime.Version()}),
		ResolvedDependencies: []*intotov1.ResourceDescriptor{{
			Uri:    "git+" + repository + "@" + r.commit,
			Digest: map[string]string{"gitCommit": r.commit},
		}},
	}
}

func structOf(fields map[string]any) *structpb.Struct {
	s, err := structpb.NewStruct(fields)
	if err != nil {
		panic(err) // the callers in this file pass strings and lists of strings
	}
	return s
}

// subjects returns the files and the images as subjects, sorted by name. The digest of an image is
// that of its index.
func subjects(version string, files, images map[string]string) []*intotov1.ResourceDescriptor {
	all := map[string]string{}
	for file, digest := range files {
		all[file] = digest
	}
	for program, digest := range images {
		all[registry+"/"+program+":"+version] = strings.TrimPrefix(digest, "sha256:")
	}
	var list []*intotov1.ResourceDescriptor
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, &intotov1.ResourceDescriptor{Name: name, Digest: map[string]string{"sha256": all[name]}})
	}
	return list
}

// readProvenance returns a statement and its predicate.
func readProvenance(data []byte) (*intotov1.Statement, *provenancev1.Provenance, error) {
	statement, predicate := &intotov1.Statement{}, &provenancev1.Provenance{}
	if err := protojson.Unmarshal(data, statement); err != nil {
		return nil, nil, err
	}
	if err := statement.Validate(); err != nil {
		return nil, nil, err
	}
	if statement.GetType() != statementType || statement.GetPredicateType() != predicateType {
		return nil, nil, fmt.Errorf("it is a %s with a %s", statement.GetType(), statement.GetPredicateType())
	}
	text, err := protojson.Marshal(statement.GetPredicate())
	if err != nil {
		return nil, nil, err
	}
	if err := protojson.Unmarshal(text, predicate); err != nil {
		return nil, nil, err
	}
	return statement, predicate, predicate.Validate()
}

// goVersionOf returns the version of Go that made a release.
func goVersionOf(of *provenancev1.Provenance) string {
	return of.GetBuildDefinition().GetInternalParameters().GetFields()["goVersion"].GetStringValue()
}

// checkProvenance compares a statement with a release and its files and images. It does not check
// who built the release, and when.
func (r *release) checkProvenance(data []byte, files, images map[string]string) error {
	statement, predicate, err := readProvenance(data)
	if err != nil {
		return err
	}
	if got, want := predicate.GetBuildDefinition(), r.buildDefinition(); !proto.Equal(got, want) {
		return fmt.Errorf("its build definition is %v; want %v", got, want)
	}
	if !slices.EqualFunc(statement.GetSubject(), subjects(r.version, files, images), func(
		a, b *intotov1.ResourceDescriptor,
	) bool {
		return proto.Equal(a, b)
	}) {
		return fmt.Errorf("its subjects are not the files and images of the release")
	}
	return nil
}

// canonicalJSON returns a message as JSON with sorted keys. The output of protojson is not stable,
// because it contains random spaces.
func canonicalJSON(m proto.Message) ([]byte, error) {
	text, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	var value any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	text, err = json.MarshalIndent(value, "", "  ")
	return append(text, '\n'), err
}
