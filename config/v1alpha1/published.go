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

// The keys in the data of the ConfigMap [PublishedName].
const (
	publishedHash       = "hash"
	publishedSettings   = "tenancy.yaml"
	publishedPolicy     = "policy.jsonl"
	publishedRevocation = "revocation.yaml"
	// publishedReplica is the prefix of the key of each replica.
	publishedReplica = "replica."
)

// maxPublished limits the total size, in bytes, of the configuration and of the files that are
// published with it. Files that do not fit are omitted. A ConfigMap can contain at most 1 MiB.
const maxPublished = 700 << 10

// maxReplicas is the maximum number of replicas in the ConfigMap.
const maxReplicas = 64

// ErrNotPublished reports that a ConfigMap contains no configuration that this version can read.
var ErrNotPublished = errors.New("no configuration that this version can read")

// Published is the effective configuration of a running server, for people and tools.
//
// Security: no decision may depend on it, because every caller that may write ConfigMaps in the
// server's namespace can change it. It contains the content of the policy file and of the
// revocation file. It contains only the paths of the other files that the configuration names, so
// it contains no credential.
type Published struct {
	// Hash is the hash of the configuration, as in the metric kubetenant_config_info.
	Hash string
	// Settings contains the defaulted settings. Its paths are paths on the server.
	Settings Settings
	// Policy and Revocation are the contents of the policy file and of the revocation file. Each
	// is empty if there is no such file, or if the file is too large for the ConfigMap.
	Policy, Revocation string
	// Replicas are the servers that have an entry in the ConfigMap. A server that has stopped may
	// still have an entry.
	Replicas []Replica
}

// Replica describes a server that has published its configuration.
type Replica struct {
	// Name is the name of the server's host or Pod.
	Name string `json:"-"`
	// Hash is the hash of the replica's configuration.
	Hash string `json:"hash"`
	// Version is the version of kubetenant in the server.
	Version string `json:"version,omitempty"`
	// Since is when the server loaded this configuration.
	Since metav1.Time `json:"since"`
}

// Data returns the key and the value of the entry of r in the data of the ConfigMap.
func (r *Replica) Data() (map[string]string, error) {
	text, err := json.Marshal(r)
	return map[string]string{publishedReplica + r.Name: string(text)}, err
}

// ConfigMap returns the ConfigMap to publish in the given namespace. It omits files that are too
// large, and has no entries of replicas.
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

// PublishedIn returns the configuration in a ConfigMap that [Published.ConfigMap] created. The
// error wraps [ErrNotPublished].
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
		if is && json.Unmarshal([]byte(object.Data[key]), &r) == nil { // a later release may have written the entry
			r.Name = name
			p.Replicas = append(p.Replicas, r)
		}
	}
	return p, nil
}

// SurplusReplicas returns a merge patch that removes the oldest entries of replicas from the
// ConfigMap, so that maxReplicas entries remain. It returns nil if the ConfigMap has no more than
// maxReplicas entries. Names of Pods are not reused, so entries would accumulate without this
// patch.
func SurplusReplicas(object *corev1.ConfigMap) []byte {
	since := map[string]time.Time{}
	for key, text := range object.Data {
		r := Replica{}
		if strings.HasPrefix(key, publishedReplica) {
			_ = json.Unmarshal([]byte(text), &r) // an unreadable entry is treated as the oldest
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
	patch, _ := json.Marshal(map[string]any{"data": removed}) // strings and nil can always be marshaled
	return patch
}
