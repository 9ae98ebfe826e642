// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	tenantv1alpha1 "github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// PublishedName is the name of the ConfigMap in which a server publishes its configuration.
const PublishedName = "kubetenant-configuration"

// The keys of the ConfigMap.
const (
	publishedHash       = "hash"
	publishedSettings   = "tenancy.yaml"
	publishedPolicy     = "policy.jsonl"
	publishedRevocation = "revocation.yaml"
	// publishedReplica is the prefix of the keys of replicas.
	publishedReplica = "replica."
)

// maxPublished bounds what is published of the files beside the configuration:
// a ConfigMap holds 1 MiB.
const maxPublished = 700 << 10

// maxReplicas is the maximum number of replicas in the ConfigMap.
const maxReplicas = 64

// ErrNotPublished says that an object does not hold a configuration that this version reads.
var ErrNotPublished = errors.New("no configuration that this version can read")

// Published is the effective configuration of a running server, for people and tools. Nothing
// decides by it: who may write ConfigMaps of the server's namespace can write anything into it. It
// holds no credential: of the files that a configuration names it has the policy file and the
// revocations, and of the rest their paths on the server.
type Published struct {
	// Hash is that of the metric kubetenant_config_info.
	Hash string
	// Settings are defaulted. Paths are the server's.
	Settings Settings
	// Policy and Revocation are the files' content; empty where there is none,
	// or too much for an object.
	Policy, Revocation string
	// Replicas are the servers that have published, by their names. One that has
	// stopped may still be listed.
	Replicas []Replica
}

// Replica describes one server.
type Replica struct {
	// Name is the server's host, or its Pod.
	Name string `json:"-"`
	// Hash is the hash of its configuration.
	Hash string `json:"hash"`
	// Version is the version of kubetenant in the server.
	Version string `json:"version,omitempty"`
	// Since is when the server loaded this configuration.
	Since metav1.Time `json:"since"`
}

// Data returns the entry of a replica in the ConfigMap.
func (r *Replica) Data() (map[string]string, error) {
	text, err := json.Marshal(r)
	return map[string]string{publishedReplica + r.Name: string(text)}, err
}

// ConfigMap returns the object in a namespace. Its files are left out where they are too large.
func (p *Published) ConfigMap(namespace string) (*corev1.ConfigMap, error) {
	text, err := yaml.Marshal(&TenancyConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: tenantv1alpha1.GroupVersion, Kind: KindTenancyConfiguration},
		Settings: p.Settings,
	})
	if err != nil {
		return nil, err
	}
	data := map[string]string{publishedHash: p.Hash, publishedSettings: string(text)}
	left := maxPublished - len(text)
	for key, file := range map[string]string{publishedRevocation: p.Revocation, publishedPolicy: p.Policy} {
		if file != "" && len(file) <= left/2 {
			data[key] = file
		}
	}
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: PublishedName, Namespace: namespace},
		Data:       data,
	}, nil
}

// PublishedIn reads what [Published.ConfigMap] wrote. The error wraps [ErrNotPublished].
func PublishedIn(object *corev1.ConfigMap) (*Published, error) {
	config, err := Decode([]byte(object.Data[publishedSettings]))
	if err != nil {
		return nil, fmt.Errorf("%w: ConfigMap %s/%s: %w", ErrNotPublished, object.Namespace, object.Name, err)
	}
	p := &Published{
		Hash:       object.Data[publishedHash],
		Settings:   config.Settings,
		Policy:     object.Data[publishedPolicy],
		Revocation: object.Data[publishedRevocation],
	}
	for _, key := range slices.Sorted(maps.Keys(object.Data)) {
		r := Replica{}
		name, is := strings.CutPrefix(key, publishedReplica)
		if is && json.Unmarshal([]byte(object.Data[key]), &r) == nil { // one of a later release may not be readable
			r.Name = name
			p.Replicas = append(p.Replicas, r)
		}
	}
	return p, nil
}

// SurplusReplicas returns a merge patch that removes the oldest entries of replicas from the
// ConfigMap, or nil if there are at most maxReplicas. Names of Pods are not reused, so their
// entries would accumulate.
func SurplusReplicas(object *corev1.ConfigMap) []byte {
	since := map[string]time.Time{}
	for key, text := range object.Data {
		r := Replica{}
		if strings.HasPrefix(key, publishedReplica) {
			_ = json.Unmarshal([]byte(text), &r) // one that is not readable is the oldest
			since[key] = r.Since.Time
		}
	}
	if len(since) <= maxReplicas {
		return nil
	}
	keys := slices.SortedFunc(maps.Keys(since), func(a, b string) int { return since[a].Compare(since[b]) })
	removed := map[string]any{}
	for _, key := range keys[:len(keys)-maxReplicas] {
		removed[key] = nil
	}
	patch, _ := json.Marshal(map[string]any{"data": removed}) // of strings only
	return patch
}
