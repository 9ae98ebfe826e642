// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"encoding/base64"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/internal/manifests"
	"github.com/kubetenant/kubetenant/internal/manifests/webhook"
)

// withNetworks selects AdmissionOnly and sets the networks of kube-apiserver's requests.
func withNetworks(networks ...string) func(*webhook.Options) {
	return func(o *webhook.Options) {
		o.AdmissionOnly, o.URL = true, ""
		for _, text := range networks {
			_, network, _ := net.ParseCIDR(text)
			o.AdmissionClients = append(o.AdmissionClients, *network)
		}
	}
}

// TestGenerateOptions checks that each option changes only the expected files.
func TestGenerateOptions(t *testing.T) {
	ca := func(o *webhook.Options) { o.SelfManaged, o.ServingCA = false, o.ClientCA }
	for name, c := range map[string]struct {
		change         func(*webhook.Options)
		file, has, not string
	}{
		"URL": {
			func(*webhook.Options) {}, "control-plane/webhook-authorize.kubeconfig", "server: https://10.0.0.9:9443/", "",
		},
		"cluster IP": {
			func(o *webhook.Options) { o.URL, o.ClusterIP = "", "10.0.0.1" },
			"control-plane/webhook-authorize.kubeconfig",
			"server: https://10.0.0.1/",
			"",
		},
		"URL and cluster IP": {
			func(o *webhook.Options) { o.ClusterIP = "10.0.0.1" },
			"control-plane/webhook-authorize.kubeconfig",
			"10.0.0.9",
			"10.0.0.1",
		},
		"client certificate": {
			func(*webhook.Options) {},
			"control-plane/webhook-authenticate.kubeconfig",
			"client-certificate: /etc/kubernetes/kubetenant/client.crt",
			"",
		},
		"admission in the cluster": {
			func(*webhook.Options) {},
			"control-plane/webhook-admit.kubeconfig",
			"kubetenant-webhook.kubetenant-system.svc",
			"10.0.0.9",
		},
		"admission outside of the cluster": {
			func(o *webhook.Options) { o.External = true },
			"control-plane/webhook-admit.kubeconfig",
			"10.0.0.9:9443",
			"kubetenant-webhook.kubetenant-system.svc",
		},
		"webhooks in the cluster": {func(*webhook.Options) {}, "cluster/webhooks.yaml", "service:", "url:"},
		"webhooks outside of the cluster": {
			func(o *webhook.Options) { o.External = true }, "cluster/webhooks.yaml", "url:", "service:",
		},
		"given authorities":     {ca, "cluster/webhooks.yaml", "caBundle:", ""},
		"generated authorities": {func(*webhook.Options) {}, "cluster/webhooks.yaml", "service:", "caBundle:"},
		"backfill groups": {
			func(o *webhook.Options) { o.BackfillGroups = []string{"example.com"} }, "cluster/accounts.yaml", "example.com", "",
		},
		"no backfill groups":   {func(*webhook.Options) {}, "cluster/accounts.yaml", "kubetenant", "example.com"},
		"certificates account": {func(*webhook.Options) {}, "cluster/accounts.yaml", "name: kubetenant-certificates", ""},
		"no such account":      {ca, "cluster/accounts.yaml", "name: kubetenant-controller", "kubetenant-certificates"},
		"exempt account for certificates": {
			func(*webhook.Options) {}, "control-plane/authorization.yaml", ":kubetenant-certificates", "",
		},
		"other authorizers": {
			func(o *webhook.Options) { o.Authorizers = []string{"RBAC"} },
			"control-plane/authorization.yaml",
			"type: RBAC",
			"type: Node",
		},
		"image": {func(*webhook.Options) {}, "cluster/deployment.yaml", "example.com/kubetenant-webhook:1", ""},
		"admission only": {
			func(o *webhook.Options) { o.AdmissionOnly, o.ClientCA, o.URL = true, "", "" },
			"cluster/deployment.yaml",
			"--admission-only",
			"client",
		},
		"admission clients": {
			withNetworks("10.1.0.0/28", "2001:db8::/64"), "cluster/deployment.yaml", "- --admission-clients=2001:db8::/64\n", "",
		},
		"network policy of admission clients": {
			withNetworks("10.1.0.0/28", "2001:db8::/64"),
			"cluster/deployment.yaml",
			"from:\n    - { ipBlock: { cidr: \"10.1.0.0/28\" } }\n    - { ipBlock: { cidr: \"2001:db8::/64\" } }\n",
			"whoever reaches",
		},
		"both roles":    {func(*webhook.Options) {}, "cluster/deployment.yaml", "--client-ca-file", "--admission-only"},
		"configuration": {func(*webhook.Options) {}, "cluster/config.yaml", "kind: TenancyConfiguration", ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t)
			c.change(&o)
			files, err := webhook.Generate(o)
			if err != nil {
				t.Errorf("%v", err)
				return
			}
			if text := string(files[c.file]); !strings.Contains(text, c.has) || c.not != "" && strings.Contains(text, c.not) {
				t.Errorf("%s has no %q, or %q", c.file, c.has, c.not)
			}
		})
	}
}

// TestGeneratedFiles checks which files are generated. A service outside of the cluster needs no
// files of objects that run in the cluster. Monitoring, static policies and authorities are
// generated only if the options request them.
func TestGeneratedFiles(t *testing.T) {
	all := func(change func(*webhook.Options)) []string {
		o := options(t)
		change(&o)
		files, err := webhook.Generate(o)
		if err != nil {
			t.Fatal(err)
		}
		return slices.Sorted(maps.Keys(files))
	}
	plain := all(func(*webhook.Options) {})
	for name, c := range map[string]struct {
		change     func(*webhook.Options)
		more, less []string
	}{
		"outside of the cluster": {
			func(o *webhook.Options) { o.External, o.Monitoring = true, true },
			nil,
			[]string{"cluster/config.yaml", "cluster/deployment.yaml"},
		},
		"monitoring": {func(o *webhook.Options) { o.Monitoring = true }, []string{"cluster/monitoring.yaml"}, nil},
		"static policies": {
			func(o *webhook.Options) { o.StaticPolicies = true }, []string{"control-plane/policies/policies.yaml"}, nil,
		},
		"admission only": {
			func(o *webhook.Options) { o.AdmissionOnly = true },
			nil,
			slices.DeleteFunc(slices.Clone(plain), func(name string) bool { return !strings.HasPrefix(name, "control-plane/") }),
		},
		"authorities": {
			func(o *webhook.Options) { o.SelfManaged, o.ServingCA = false, o.ClientCA },
			[]string{"control-plane/webhook-ca.crt"},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := all(c.change)
			missing := slices.DeleteFunc(slices.Clone(plain), func(path string) bool { return slices.Contains(got, path) })
			added := slices.DeleteFunc(got, func(path string) bool { return slices.Contains(plain, path) })
			if !slices.Equal(added, c.more) || !slices.Equal(missing, c.less) {
				t.Errorf("%v more, %v less; want %v, %v", added, missing, c.more, c.less)
			}
		})
	}
}

// TestWrite checks that all files of the requested folder, and no others, are written below dir
// with permissions for the owner only.
func TestWrite(t *testing.T) {
	files := map[string][]byte{
		"values.yaml":         []byte("v"),
		"cluster/a.yaml":      []byte("a"),
		"cluster/deep/b.yaml": []byte("b"),
		"clusters/c.yaml":     []byte("c"),
	}
	for folder, want := range map[string][]string{
		"":        slices.Sorted(maps.Keys(files)),
		"cluster": {"a.yaml", "deep/b.yaml"},
		"none":    nil,
	} {
		t.Run(folder, func(t *testing.T) {
			dir := t.TempDir()
			if err := manifests.Write(dir, folder, files); err != nil {
				t.Fatal(err)
			}
			var got []string
			err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
				info, statErr := os.Stat(path)
				if err != nil || statErr != nil || path != dir && info.Mode().Perm()&0o077 != 0 {
					t.Errorf("%s: %v, %v, %v", path, err, statErr, info.Mode())
				}
				if !d.IsDir() {
					rel, _ := filepath.Rel(dir, path)
					got = append(got, filepath.ToSlash(rel))
				}
				return nil
			})
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("folder %q: %v, %v; want %v", folder, got, err, want)
			}
		})
	}
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "in the way")
	if err := manifests.Write(file, "", files); err == nil {
		t.Error("files were written into a file")
	}
}

// TestGatewayCredentialsAreNotInstalled checks that the kubeconfigs of a gateway in the same
// configuration are not installed in a cluster, because they give access to other clusters.
func TestGatewayCredentialsAreNotInstalled(t *testing.T) {
	o := options(t)
	write(t, filepath.Join(filepath.Dir(o.Config), "eu1-imp"), "s3cret")
	text, err := os.ReadFile(o.Config)
	if err != nil {
		t.Fatal(err)
	}
	config := map[string]any{}
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	config["gateway"] = map[string]any{"clusters": []any{map[string]any{
		"name":         "eu1",
		"tenants":      []any{"*"},
		"reader":       map[string]any{"kubeConfigFile": "not-made-yet"},
		"impersonator": map[string]any{"kubeConfigFile": "eu1-imp"},
	}}}
	if text, err = yaml.Marshal(config); err != nil {
		t.Fatal(err)
	}
	write(t, o.Config, string(text))
	files, err := webhook.Generate(o)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if strings.Contains(string(text), "s3cret") ||
			strings.Contains(string(text), base64.StdEncoding.EncodeToString([]byte("s3cret"))) {
			t.Errorf("%s contains the gateway's credential", name)
		}
	}
}
