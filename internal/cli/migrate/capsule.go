// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubetenant/kubetenant/internal/yamlfile"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// Domains of Capsule's API groups, labels and annotations.
const (
	capsuleGroup  = "capsule.clastix.io"
	capsuleDomain = "projectcapsule.dev"
)

// Output files of a migration from Capsule. kubectl apply -f reads the files in a folder in the
// order of their names.
const (
	templatesFile     = "cluster/1-namespacetemplates.yaml"
	tenantsFile       = "cluster/2-tenants.yaml"
	adoptedFile       = adoptedFolder + "/tenants.yaml"
	adoptedFolder     = "after-adoption"
	configurationFile = "configuration/tenancy.yaml"
)

var errNoTenant = errors.New("the file contains no Tenant of " + capsuleGroup +
	"; to get them, run kubectl get tenants." + capsuleGroup + " -o yaml")

// capsuleMigration contains the objects in a file, and the results of their conversion.
type capsuleMigration struct {
	result     *Result
	tenants    []*capsuleTenant
	namespaces []node
	// resources contains the GlobalTenantResources. published contains the result of their
	// conversion.
	resources []node
	published published
	settings  admissionSettings
}

// capsuleTenant is a Capsule Tenant, with the objects that its conversion creates.
type capsuleTenant struct {
	node
	name string
	id   tenant.ID
	// namespaces contains the tenant's existing namespaces.
	namespaces []string
	object     *v1alpha1.Tenant
	template   *v1alpha1.NamespaceTemplate
	// objects contains the objects of the template.
	objects []map[string]any
}

// capsule converts Capsule's Tenants with their Namespaces, and its GlobalTenantResources.
func capsule(data []byte, o Options) (*Result, error) {
	contents, err := documents(data)
	if err != nil {
		return nil, err
	}
	m := &capsuleMigration{result: &Result{Files: map[string]string{}}}
	for i, content := range contents {
		m.read(i+1, content)
	}
	if len(m.tenants) == 0 {
		return nil, errNoTenant
	}
	m.dropDuplicates()
	m.assignNamespaces()
	for _, t := range m.tenants {
		m.convert(t)
	}
	m.convertResources()
	return m.result, m.write(o.Dir)
}

// read stores an object according to its kind. It reports an object of an unsupported kind.
func (m *capsuleMigration) read(number int, content map[string]any) {
	kind, _ := content["kind"].(string)
	version, _ := content["apiVersion"].(string)
	metadata, _ := content["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	location := fmt.Sprintf("object %d (%s %s)", number, kind, name)
	isCapsule := strings.HasPrefix(version, capsuleGroup+"/")
	if isCapsule && kind == "Tenant" {
		location = "tenant " + name
	}
	n := newDocument(location, content, m.result)
	n.get("apiVersion").consume()
	n.get("kind").consume()
	switch {
	case isCapsule && kind == "Tenant":
		m.tenants = append(m.tenants, &capsuleTenant{node: n, name: name})
	case isCapsule && kind == "GlobalTenantResource":
		m.resources = append(m.resources, n)
	case kind == "Namespace" && version == "v1":
		m.namespaces = append(m.namespaces, n)
	case isCapsule && capsuleKinds[kind] != "":
		m.result.reportUnconverted(location, "the whole object: %s", capsuleKinds[kind])
	default:
		m.result.reportUnconverted(location, "the whole object: kind %s of %s is not supported; set it up by hand",
			kind, version)
	}
}

// dropDuplicates removes all Tenants that have the same name as another Tenant in the file,
// because the file does not specify which one is in use. It also removes Tenants whose name is
// not a valid tenant ID, or is system.
func (m *capsuleMigration) dropDuplicates() {
	count := map[string]int{}
	for _, t := range m.tenants {
		count[t.name]++
	}
	var unique []*capsuleTenant
	for _, t := range m.tenants {
		var err error
		switch t.id, err = tenant.Parse(t.name); {
		case err != nil:
			m.result.reportUnconverted(t.location, "the whole Tenant: metadata.name is not a valid tenant ID (%v); "+
				"create the tenant under another name", err)
		case t.id.IsSystem():
			m.result.reportUnconverted(
				t.location,
				"the whole Tenant: system is the reserved name of the system tenant; create the tenant "+
					"under another name",
			)
		case count[t.name] > 1:
			m.result.reportUnconverted(t.location, "the whole Tenant: the file contains %d Tenants of this name; keep one",
				count[t.name])
		default:
			unique = append(unique, t)
		}
	}
	m.tenants = unique
}

// convert creates the objects for a Tenant, and reports the settings that are not converted.
func (m *capsuleMigration) convert(t *capsuleTenant) {
	name := t.id.ObjectName()
	t.object = &v1alpha1.Tenant{
		TypeMeta:   typeMeta(v1alpha1.GroupVersion, v1alpha1.KindTenant),
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.TenantSpec{ID: t.id.String(), DeletionPolicy: v1alpha1.TenantDeletionProtect},
	}
	t.template = &v1alpha1.NamespaceTemplate{
		TypeMeta:   typeMeta(v1alpha1.GroupVersion, v1alpha1.KindNamespaceTemplate),
		ObjectMeta: metav1.ObjectMeta{Name: name + "-capsule"},
	}
	t.convertMetadata()
	t.convertStatus()
	t.convertAccess()
	t.convertNamespaceOptions()
	t.convertSubjects()
	t.convertObjects()
	m.convertAdmission(t)
	for _, o := range t.objects {
		content := runtime.RawExtension{Object: &unstructured.Unstructured{Object: o}}
		t.template.Spec.Objects = append(t.template.Spec.Objects, v1alpha1.NamespaceTemplateObject{Content: content})
	}
	if len(t.template.Spec.Objects) > 0 {
		t.object.Spec.Namespaces.Templates = []string{t.template.Name}
	}
	if len(t.namespaces) == 0 {
		m.result.reportUnconverted(
			t.location,
			"its namespaces are unknown; get the Tenant from the cluster with its status, or add its "+
				"Namespaces to the file",
		)
	}
	t.reportUnhandled(capsuleReasons())
}

// write adds the output files and the next steps to the result.
func (m *capsuleMigration) write(dir string) error {
	var templates, tenants, adopted []any
	for _, t := range m.tenants {
		if len(t.template.Spec.Objects) > 0 {
			templates = append(templates, t.template)
		}
		before := t.beforeAdoption()
		tenants = append(tenants, before)
		if before != t.object {
			adopted = append(adopted, t.object)
		}
	}
	config, err := m.settings.file()
	if err != nil {
		return err
	}
	if config != "" {
		m.result.Files[configurationFile] = config
	}
	for file, objects := range map[string][]any{
		templatesFile:    templates,
		tenantsFile:      tenants,
		adoptedFile:      adopted,
		publicationsFile: m.published.all(),
	} {
		if len(objects) == 0 {
			continue
		}
		if m.result.Files[file], err = yamlfile.Marshal(objects...); err != nil {
			return err
		}
	}
	if len(m.tenants) > 0 {
		m.result.Next = m.next(dir)
	}
	return nil
}

// next returns the steps that the user must take after the migration, in order. Each step is a
// command, or begins with a verb.
func (m *capsuleMigration) next(dir string) (steps []string) {
	if m.result.Files[configurationFile] != "" {
		file := quoted(dir, configurationFile)
		steps = append(steps, "kubectl tenant validate "+file,
			"add the section admission of "+file+" to the configuration of the server")
	}
	steps = append(steps, "stop Capsule's controller and delete its webhook configurations",
		"kubectl apply -f "+quoted(dir, "cluster")+"/")
	var all []string
	for _, t := range m.tenants {
		if len(t.namespaces) == 0 {
			continue
		}
		adopt := "kubectl tenant adopt " + strings.Join(t.namespaces, " ") + " --tenant " + t.id.String()
		steps = append(steps, adopt+" --dry-run=server", adopt)
		all = append(all, t.namespaces...)
	}
	if m.result.Files[adoptedFile] != "" {
		steps = append(steps, "kubectl apply -f "+quoted(dir, adoptedFolder)+"/")
	}
	if m.result.Files[publicationsFile] != "" {
		steps = append(steps, "read the conflicts with kubectl get publications -o yaml: delete the objects that Capsule "+
			"created, or set spec.onConflict to Replace")
	}
	for _, namespace := range all {
		steps = append(steps, "kubectl patch namespace "+namespace+` --type=merge -p '{"metadata":{"ownerReferences":null}}'`)
	}
	return append(steps, "delete Capsule's Tenants and CustomResourceDefinitions last: this also deletes every "+
		"namespace that a Capsule Tenant still owns")
}

// shellWord matches a path that needs no quotes in a shell.
var shellWord = regexp.MustCompile(`^[A-Za-z0-9_./-]+$`)

// quoted returns the path of a file in a folder, quoted for a shell if necessary.
func quoted(dir, name string) string {
	path := filepath.Join(dir, name)
	if strings.HasPrefix(path, "-") {
		path = "./" + path
	}
	if shellWord.MatchString(path) {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
