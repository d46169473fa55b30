"""Let the database itself keep the audit trail append-only."""

from django.db import migrations

FORWARDS = """
CREATE FUNCTION audit_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'audit events are never changed nor deleted';
END $$;
CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE ON audit_auditevent
FOR EACH ROW EXECUTE FUNCTION audit_refuse_change();
"""
BACKWARDS = """
DROP TRIGGER audit_append_only ON audit_auditevent;
DROP FUNCTION audit_refuse_change();
"""


class Migration(migrations.Migration):
    dependencies = [("audit", "0002_actor")]
    operations = [migrations.RunSQL(FORWARDS, BACKWARDS)]
