// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"encoding/json"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/deploy"
)

const definitionKind = "CustomResourceDefinition"

// addDefinitions adds the CustomResourceDefinitions of this release to the expected objects.
func addDefinitions(want map[string]map[string]any) error {
	for _, text := range deploy.Definitions() {
		var u unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			return err
		}
		want[definitionKind+"/"+u.GetName()] = u.Object
	}
	return nil
}

// checkDefinition compares a CustomResourceDefinition with that of this release. It also reports a
// definition in the folder cluster, because an old file there would replace the definition in the
// folder crds.
func (c *checker) checkDefinition(name string, doc []byte, want map[string]any) error {
	var installed map[string]any
	if err := json.Unmarshal(doc, &installed); err != nil {
		return err
	}
	if !equality.Semantic.DeepEqual(definitionSpec(installed), definitionSpec(want)) {
		c.report("%s %s is outdated or modified: it differs from what generate writes", definitionKind, name)
	}
	if strings.HasPrefix(filepath.ToSlash(c.file), "cluster/") {
		c.report("%s %s: an earlier release wrote this file. Delete it and apply the folder %s",
			definitionKind, name, definitionsFolder)
	}
	return nil
}

// definitionSpec returns the spec of a CustomResourceDefinition without the defaults that a server
// adds.
func definitionSpec(definition map[string]any) any {
	spec, _ := withoutEmpty(definition["spec"]).(map[string]any)
	if conversion, _ := spec["conversion"].(map[string]any); conversion["strategy"] == "None" {
		delete(spec, "conversion")
	}
	return spec
}
