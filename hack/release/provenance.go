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
		BuildDefinition: &provenancev1.BuildDefinition{
			BuildType:          buildType,
			ExternalParameters: structOf(r.parameters()),
			InternalParameters: structOf(map[string]any{"goVersion": runtime.Version()}),
			ResolvedDependencies: []*intotov1.ResourceDescriptor{{
				Uri:    "git+" + repository + "@" + r.commit,
				Digest: map[string]string{"gitCommit": r.commit},
			}},
		},
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

func (r *release) parameters() map[string]any {
	var names []any
	for _, p := range r.platforms {
		names = append(names, p.String())
	}
	return map[string]any{"platforms": names, "source": repository, "version": r.version}
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

// checkProvenance compares a statement with the files and images. It returns the commit and the
// version of Go in the statement.
func checkProvenance(data []byte, version string, files, images map[string]string) (
	commit, goVersion string, err error,
) {
	statement, predicate := &intotov1.Statement{}, &provenancev1.Provenance{}
	if err := protojson.Unmarshal(data, statement); err != nil {
		return "", "", err
	}
	if err := statement.Validate(); err != nil {
		return "", "", err
	}
	if statement.GetType() != statementType || statement.GetPredicateType() != predicateType {
		return "", "", fmt.Errorf("it is a %s with a %s", statement.GetType(), statement.GetPredicateType())
	}
	text, err := protojson.Marshal(statement.GetPredicate())
	if err != nil {
		return "", "", err
	}
	if err := protojson.Unmarshal(text, predicate); err != nil {
		return "", "", err
	}
	if err := predicate.Validate(); err != nil {
		return "", "", err
	}
	definition := predicate.GetBuildDefinition()
	if got := definition.GetExternalParameters().GetFields()["version"].GetStringValue(); got != version {
		return "", "", fmt.Errorf("it is about version %q", got)
	}
	sources := definition.GetResolvedDependencies()
	if definition.GetBuildType() != buildType || len(sources) != 1 {
		return "", "", fmt.Errorf("the build definition is not the one that docs/releases.md describes")
	}
	commit = sources[0].GetDigest()["gitCommit"]
	if !commitHash.MatchString(commit) || sources[0].GetUri() != "git+"+repository+"@"+commit {
		return "", "", fmt.Errorf("the source is %s", sources[0].GetUri())
	}
	want := subjects(version, files, images)
	if !slices.EqualFunc(statement.GetSubject(), want, func(a, b *intotov1.ResourceDescriptor) bool {
		return proto.Equal(a, b)
	}) {
		return "", "", fmt.Errorf("its subjects are not the files and images of the release")
	}
	goVersion = definition.GetInternalParameters().GetFields()["goVersion"].GetStringValue()
	return commit, goVersion, nil
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
