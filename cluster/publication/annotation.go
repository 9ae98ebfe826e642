package publication

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// NameFor returns the name of the Publication that the server creates for an object with
// [tenant.PublishAnnotation], which kubectl tenant publish uses too.
func NameFor(source Source) string {
	text := strings.Join([]string{source.Kind.Group, source.Kind.Kind, source.Namespace, source.Name}, "/")
	sum := sha256.Sum256([]byte(text))
	hash := "-" + hex.EncodeToString(sum[:4])
	name := strings.ToLower(source.Kind.Kind) + "-" + source.Namespace
	return strings.TrimRight(name[:min(len(name), validation.LabelValueMaxLength-len(hash))], "-.") + hash
}

// TenantsOf returns the tenants that a value of [tenant.PublishAnnotation] names.
func TenantsOf(value string) (v1alpha1.PublicationTenants, error) {
	if strings.TrimSpace(value) == tenant.AnyName {
		return v1alpha1.PublicationTenants{All: true}, nil
	}
	var ids []string
	for i, part := range strings.Split(value, ",") {
		id, err := tenant.Parse(strings.TrimSpace(part))
		if err != nil {
			return v1alpha1.PublicationTenants{}, fmt.Errorf("element %d: %w", i, err)
		}
		if id.IsSystem() {
			return v1alpha1.PublicationTenants{}, errors.New("an object cannot be published to the system tenant")
		}
		if !slices.Contains(ids, id.String()) {
			ids = append(ids, id.String())
		}
	}
	return v1alpha1.PublicationTenants{IDs: ids}, nil
}
