package kubetenant_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"

	"github.com/kubetenant/kubetenant"
	"github.com/kubetenant/kubetenant/authz"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/tenant"
)

// ofAcme owns every namespace; package cluster knows a live cluster's.
func ofAcme() *authz.Owners {
	return authz.NewOwners(func(name string) (*corev1.Namespace, error) {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{tenant.Label: "acme"}}},
			nil
	}, nil)
}

// Open follows a configuration file for as long as the context lasts. What it returns takes the
// place of a server's own authenticator, authorizer, rule resolver and admission plugins.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for name, text := range map[string]string{
		"tokens.csv": "a-secret-of-alice,alice,1,dev,,acme\n",
		"tenancy.yaml": `apiVersion: kubetenant.dev/v1alpha1
kind: TenancyConfiguration
authentication:
  sources:
  - name: tokens
    tokenFile: { path: tokens.csv, defaultTenant: "" }
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			fmt.Println(err)
			return
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stack, err := kubetenant.Open(ctx, filepath.Join(dir, "tenancy.yaml"), kubetenant.Server{
		Cluster:       kubetenant.Cluster{Owners: ofAcme()},
		Authorization: kubetenant.Authorization{Authorizer: authorizerfactory.NewAlwaysAllowAuthorizer()},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	request, _ := http.NewRequest(http.MethodGet, "https://kubernetes.default.svc/api", http.NoBody)
	request.Header.Set("Authorization", "Bearer a-secret-of-alice")
	response, ok, err := stack.Authenticator.AuthenticateRequest(request)
	if !ok || err != nil {
		fmt.Println(ok, err)
		return
	}
	id, err := tenant.Of(response.User)
	fmt.Println(response.User.GetName(), id, err)
	decision, _, err := stack.Authorizer.Authorize(ctx, &authorizer.AttributesRecord{
		User:            response.User,
		Verb:            "get",
		APIVersion:      "v1",
		Resource:        "pods",
		Namespace:       "acme--web",
		ResourceRequest: true,
	})
	fmt.Println(decision == authorizer.DecisionAllow, err)
	// Output:
	// alice acme <nil>
	// true <nil>
}

// New takes settings that stand in a program; Register puts the plugins among a server's own.
func ExampleNew() {
	settings, err := (&configv1alpha1.Settings{}).Complete()
	if err != nil {
		fmt.Println(err)
		return
	}
	stack, err := kubetenant.New(context.Background(), settings,
		kubetenant.Server{Cluster: kubetenant.Cluster{Owners: ofAcme()}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, plugin := range stack.Admission {
		fmt.Println(plugin.Name)
	}
	// Output:
	// TenantRequest
	// TenantNamespace
	// TenantLifecycle
	// TenantRestriction
	// TenantRoleBinding
	// TenantManaged
	// TenantStatus
	// TenantGrant
	// TenantAttribution
	// TenantBinding
	// TenantPlacement
	// TenantPolicy
	// TenantLabel
	// TenantGate
	// TenantQuota
}

// A server's admission is made of the plugins that it knows by name, in the order of their names
// here; the Stack's stand among them.
func ExampleRegister() {
	settings, err := (&configv1alpha1.Settings{}).Complete()
	if err != nil {
		fmt.Println(err)
		return
	}
	stack, err := kubetenant.New(context.Background(), settings,
		kubetenant.Server{Cluster: kubetenant.Cluster{Owners: ofAcme()}})
	if err != nil {
		fmt.Println(err)
		return
	}
	plugins := admission.NewPlugins()
	kubetenant.Register(stack.Admission, plugins)
	chain, err := plugins.NewFromPlugins([]string{"TenantLabel"}, noConfiguration{}, admission.PluginInitializers{}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "prices", Namespace: "acme--web"}}
	attributes := admission.NewAttributesRecord(object, nil, corev1.SchemeGroupVersion.WithKind("ConfigMap"), "acme--web",
		"prices",
		corev1.SchemeGroupVersion.WithResource("configmaps"), "", admission.Create, nil, false,
		&user.DefaultInfo{Name: "alice"})
	err = chain.(admission.MutationInterface).Admit(context.Background(), attributes, nil)
	fmt.Println(object.Labels, err)
	// Output:
	// map[kubetenant.dev/tenant:acme] <nil>
}

type noConfiguration struct{}

func (noConfiguration) ConfigFor(string) (io.Reader, error) { return nil, nil }
