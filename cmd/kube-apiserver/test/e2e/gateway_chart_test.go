// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const gatewayChart = "../../../../deploy/gateway"

// TestGatewayChart checks that the chart renders the same objects as "kubetenant-gateway generate",
// that a server accepts them, and that the chart's values take effect. It also checks that invalid
// values are rejected.
func TestGatewayChart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := filepath.Join(dir, "tenancy.yaml")
	writeFile(t, config, gatewayTenancy)
	image := "registry.example.com/kubetenant-gateway:1"
	out := filepath.Join(dir, "out")
	run(t, "kubetenant-gateway", "generate", "--config", config, "--image", image, "--out", out)
	data := readFile(t, filepath.Join(out, "gateway.yaml"))
	run(t, "helm", "lint", "--strict", gatewayChart, "--set", "image="+image)
	template := func(more ...string) string {
		return run(t, "helm", append([]string{"template", "gateway", gatewayChart, "-n", "kubetenant-system"}, more...)...)
	}
	if rendered, want := objects(t, template("--set", "image="+image)), objects(t, data); !slices.Equal(rendered,
		want) {
		t.Errorf("helm template:\n%s\n\ngenerate:\n%s", strings.Join(rendered, "\n"), strings.Join(want, "\n"))
	}
	values := filepath.Join(dir, "values.yaml")
	writeFile(t, values, `image: registry.example.com/kubetenant-gateway:2
replicas: 3
resources: { limits: { memory: 2Gi } }
extraArgs: ["--proxy-protocol-from=192.0.2.10"]
extraEnv: [ { name: HTTPS_PROXY, value: "http://proxy.example.com" } ]
extraVolumes: [ { name: audit, emptyDir: {} } ]
extraVolumeMounts: [ { name: audit, mountPath: /audit } ]
configSecret: other
serviceAccountAnnotations: { eks.amazonaws.com/role-arn: "arn:aws:iam::1:role/gateway" }
service: { type: LoadBalancer, externalTrafficPolicy: Local, loadBalancerSourceRanges: [203.0.113.0/24] }
networkPolicy: { enabled: true, from: [ { ipBlock: { cidr: 203.0.113.0/24 } } ] }
nodeSelector: { pool: edge }
labels: { team: platform }
`)
	set := strings.Join(objects(t, template("-f", values)), "\n")
	for _, want := range []string{
		`"replicas":3`, `"--memory-limit=2Gi","--proxy-protocol-from=192.0.2.10"`, `"value":"http://proxy.example.com"`,
		`{"emptyDir":{},"name":"audit"}`, `{"mountPath":"/audit","name":"audit"}`,
		`"secretName":"other"`, `"eks.amazonaws.com/role-arn":"arn:aws:iam::1:role/gateway"`,
		`"externalTrafficPolicy":"Local"`, `"type":"LoadBalancer"`, `"loadBalancerSourceRanges":["203.0.113.0/24"]`,
		`"from":[{"ipBlock":{"cidr":"203.0.113.0/24"}}],"ports":[{"port":"https"}]`,
		`"nodeSelector":{"pool":"edge"}`, `"team":"platform"`,
	} {
		if !strings.Contains(set, want) {
			t.Errorf("no %s in\n%s", want, set)
		}
	}
	s := startServer(t, nil, "--tenancy=false")
	file := filepath.Join(dir, "set.yaml")
	writeFile(t, file, template("-f", values))
	for _, args := range [][]string{
		{"create", "namespace", "kubetenant-system"},
		{"apply", "--validate=strict", "-f", filepath.Join(out, "gateway.yaml")},
		{"apply", "--validate=strict", "-f", file},
		{"apply", "--validate=strict", "-f", filepath.Join(out, "clusters")},
	} {
		if output, err := s.kubectl(t, "admin", args...); err != nil {
			t.Errorf("%v: %s", args, output)
		}
	}
	for invalid, at := range map[string]string{
		"replicas=0":                        "at '/replicas'",
		"image=":                            "at '/image'",
		"service.type=ExternalName":         "at '/service/type'",
		"limit=1":                           "additional properties 'limit'",
		"extraArgs[0]=serve":                "at '/extraArgs/0'",
		`labels.app\.kubernetes\.io/name=x`: "invalid propertyName 'app.kubernetes.io/name'",
	} {
		t.Run(invalid, func(t *testing.T) {
			if output, err := exec.CommandContext(t.Context(), binary(t, "helm"), "template", gatewayChart, "--set", "image=x",
				"--set", invalid).CombinedOutput(); err == nil || !bytes.Contains(output, []byte(at)) {
				t.Errorf("%v\n%s", err, output)
			}
		})
	}
}
