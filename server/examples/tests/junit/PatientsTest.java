import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;
import static org.junit.jupiter.api.Assertions.assertTrue;

class PatientsTest {
    @RegisterExtension
    static Trefoil trefoil = new Trefoil();

    @Test
    void aStoredPatientIsFoundByTheName() throws Exception {
        trefoil.put("Patient/p1", "{\"resourceType\":\"Patient\",\"id\":\"p1\",\"name\":[{\"family\":\"Quillfeather\"}]}");
        assertTrue(trefoil.get("Patient?family=Quillfeather").contains("\"total\":1"));
    }
}
