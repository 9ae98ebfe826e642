package v1alpha1

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// PublishedName is the name of the ConfigMap in which a server publishes its configuration.
const PublishedName = "kubetenant-configuration"

// The keys of the ConfigMap.
const (
	publishedHash       = "hash"
	publishedSettings   = "tenancy.yaml"
	publishedPolicy     = "policy.jsonl"
	publishedRevocation = "revocation.yaml"
)

// maxPublished bounds what is published of the files beside the configuration: a ConfigMap holds 1 MiB.
const maxPublished = 700 << 10

// ErrNotPublished says that an object does not hold a configuration that this version reads.
var ErrNotPublished = errors.New("no configuration that this version can read")

// Published is the effective configuration of a running server, for people and tools. Nothing decides by it: who may
// write ConfigMaps of the server's namespace can make it say anything. It holds no credential: of the files that a
// configuration names it has the policy file and the revocations, and of the rest their paths on the server.
type Published struct {
	// Hash is that of the metric kubetenant_config_info.
	Hash string
	// Settings are defaulted. Paths are the server's.
	Settings Settings
	// Policy and Revocation are the files' content; empty where there is none, or too much for an object.
	Policy, Revocation string
}

// ConfigMap returns the object in a namespace. Its files are left out where they are too large.
func (p *Published) ConfigMap(namespace string) (*corev1.ConfigMap, error) {
	text, err := yaml.Marshal(&TenancyConfiguration{TypeMeta: metav1.TypeMeta{APIVersion: GroupVersion, Kind: KindTenancyConfiguration}, Settings: p.Settings})
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
	return &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: PublishedName, Namespace: namespace}, Data: data}, nil
}

// PublishedIn reads what [Published.ConfigMap] wrote. The error wraps [ErrNotPublished].
func PublishedIn(object *corev1.ConfigMap) (*Published, error) {
	config, err := Decode([]byte(object.Data[publishedSettings]))
	if err != nil {
		return nil, fmt.Errorf("%w: ConfigMap %s/%s: %w", ErrNotPublished, object.Namespace, object.Name, err)
	}
	return &Published{Hash: object.Data[publishedHash], Settings: config.Settings, Policy: object.Data[publishedPolicy], Revocation: object.Data[publishedRevocation]}, nil
}
